/* Stands in for the CUDA runtime under the host code of a CuTe DSL kernel: every launch goes to a callback instead of a GPU.
   Declarations follow the CUDA runtime API (cudaLaunchKernelExC) and TVM-FFI's C API. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct { uint32_t grid[3], block[3]; size_t shared_bytes; void *stream; void *attributes; uint32_t attribute_count; } Config;
typedef void (*Launch)(const Config *, const char *, void **);

static Launch on_launch;
static char message[4096];
static char names[64][1024];
static int name_count;

void twill_recorder_install(Launch f) { on_launch = f; message[0] = 0; }
const char *twill_recorder_error(void) { return message; }

int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaSetDevice(int device) { (void)device; return 0; }
int _cudaDeviceGetAttribute(int *value, int attribute, int device) { (void)attribute; (void)device; *value = 232448; return 0; }
int _cuKernelGetAttribute(int *value, int attribute, void *kernel, int device) {
  (void)attribute; (void)kernel; (void)device; *value = 0; return 0;
}
int _cudaFuncSetAttribute(void *f, int attribute, int value) { (void)f; (void)attribute; (void)value; return 0; }
int _cudaKernelSetAttributeForDevice(void *f, int attribute, int value, int device) {
  (void)f; (void)attribute; (void)value; (void)device; return 0;
}
int _cudaLibraryLoadData(void **library, const void *code) { *library = (void *)code; return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) {
  (void)library;
  if (name_count == 64) return 2;
  strncpy(names[name_count], name, sizeof names[0] - 1);
  *kernel = names[name_count++];
  return 0;
}
int _cudaLaunchKernelEx(const Config *config, const void *kernel, void **arguments) {
  if (!on_launch) return 1;
  on_launch(config, (const char *)kernel, arguments);
  return 0;
}
const char *_cudaGetErrorString(int e) { (void)e; return "refused by the recorder"; }
const char *_cudaGetErrorName(int e) { (void)e; return "recorder"; }

int cuda_dialect_init_library_once(void **library, int (*init)(void **), int (*load)(void **, int), void *fail) {
  (void)fail;
  if (*library) return 0;
  void *made = NULL;
  int e = init(&made);
  if (!e && load) e = load(&made, 0);
  *library = made;
  return e;
}
int cuda_dialect_unload_library_once(void **library) { *library = NULL; return 0; }

void *TVMFFIEnvGetStream(int32_t type, int32_t id) { (void)type; (void)id; return NULL; }
int TVMFFIEnvSetStream(int32_t type, int32_t id, void *stream, void **old) { (void)type; (void)id; (void)stream; if (old) *old = NULL; return 0; }
void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *text) {
  strncpy(message, kind, 200); strncat(message, ": ", 3); strncat(message, text, sizeof message - 300);
}
void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int32_t n) {
  strncpy(message, kind, 200); strncat(message, ": ", 3);
  for (int i = 0; i < n; i++) strncat(message, parts[i], sizeof message - strlen(message) - 1);
}
void CuteDSLRT_TVMFFISetRaisedCudaError(int e) { (void)e; strcpy(message, "CUDA error from the recorder"); }
