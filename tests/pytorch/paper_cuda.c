/* A CUDA runtime of paper: every call succeeds, and a launch prints what it was given. Loaded before a compiled kernel, in whose library
 * these names are wrappers around the real runtime. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { unsigned x, y, z; } extent;
typedef struct { extent grid, block; size_t smem; void *stream, *attributes; unsigned count; } launch;

static int descriptors, quiet, places[16];
long paper_launches = 0;

/* Which arguments of the kernel are tensor maps, and whether launches are printed. */
void paper_expect(int count, const int *where, int say_nothing)
{
    descriptors = count;
    memcpy(places, where, count * sizeof *where);
    quiet = say_nothing;
}

int _cudaGetDevice(int *device) { *device = 0; return 0; }
int _cudaSetDevice(int device) { (void)device; return 0; }
int _cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int _cudaDeviceGetAttribute(int *value, int what, int device) { (void)what; (void)device; *value = 232448; return 0; }
int _cudaLibraryLoadData(void **library, const void *code) { (void)code; *library = (void *)8; return 0; }
int _cudaLibraryUnload(void *library) { (void)library; return 0; }
int _cudaLibraryGetKernel(void **kernel, void *library, const char *name) { (void)library; (void)name; *kernel = (void *)16; return 0; }
int _cudaKernelSetAttributeForDevice(void *kernel, int what, int value, int device)
{
    (void)kernel; (void)what; (void)value; (void)device;
    return 0;
}
int _cudaFuncSetAttribute(void *kernel, int what, int value) { (void)kernel; (void)what; (void)value; return 0; }
int _cuKernelGetAttribute(int *value, int what, void *kernel, int device)
{
    (void)what; (void)kernel; (void)device;
    *value = 0;
    return 0;
}
int _cudaGetLastError(void) { return 0; }

/* Loads the kernel's code into every device, once; here there is one. */
int cuda_dialect_init_library_once(void **library, int (*load)(void **), int (*to_device)(void **, int), void *report)
{
    (void)report;
    void *loaded = 0;
    if (*library)
        return 0;
    if (load(&loaded) || (to_device && to_device(&loaded, 0)))
        return -1;
    *library = loaded;
    return 0;
}
int cuda_dialect_unload_library_once(void **library) { (void)library; return 0; }

int _cudaLaunchKernelEx(const launch *given, const void *kernel, void **arguments)
{
    (void)kernel;
    paper_launches++;
    if (quiet)
        return 0;
    printf("launch %u %u %u %u %zu %llu", given->grid.x, given->grid.y, given->grid.z, given->block.x, given->smem,
           (unsigned long long)(uintptr_t)given->stream);
    for (int i = 0; i < descriptors; i++) {
        const uint64_t *words = arguments[places[i]];
        for (int j = 0; j < 8; j++)
            printf(" %llx", (unsigned long long)words[j]);
    }
    printf("\n");
    fflush(stdout);
    return 0;
}
