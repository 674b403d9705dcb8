// How wgmma is taken by the tensor core of sm_90a, by the clock of the SM, without arithmetic beside it:
//   nvcc -O3 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o queue queue.cu && ./queue
// accept: when a warpgroup goes on behind K instructions, and when they are over. chain: one or two groups a turn, then work that only
// waits. loop: FlashAttention-3's order with such work, free running and with ping-pong barriers.
#include "wgmma.cuh"

// accepted: cycles until K steps have been issued; done: until they are over. WG w starts w*delay later
template<int D,int K,int RS> __global__ void accept(uint32_t*out,int groups,int delay){
  clear(); uint32_t base=(uint32_t)__cvta_generic_to_shared(smem); int w=threadIdx.x/128;
  float d[Mma<D>::R]; uint32_t a[4]={0,0,0,0}; for(auto&x:d)x=0;
  uint64_t A=desc(base+w*8192),B=desc(base+32768);
  for(int r=0;r<4;r++){
    __syncthreads(); uint32_t t=now();
    if(w<groups){
      if(w*delay) spin(w*delay);
      uint32_t t0=now(); fence();
      #pragma unroll
      for(int k=0;k<K;k++){ if(RS) Mma<D>::rs(d,a,B+2*(k&3)); else Mma<D>::ss(d,A+2*(k&3),B+2*(k&3)); }
      commit(); uint32_t t1=now(); wait<0>(); uint32_t t2=now();
      if(threadIdx.x%128==0){ out[w*4]=t0-t; out[w*4+1]=t1-t0; out[w*4+2]=t2-t0; out[w*4+3]=t2-t; }
    }
    __syncthreads();
  }
  float s=0; for(auto x:d)s+=x; if(s==1.2345f) out[63]=1;
}
// one or two groups a turn, one to three warpgroups; GROUPS 1: QK only. work between wait<1> and wait<0>, more after
template<int D,int KQ,int KP,int RS> __global__ void chain(uint32_t*out,int groups,int work,int more,int steps){
  clear(); uint32_t base=(uint32_t)__cvta_generic_to_shared(smem); int w=threadIdx.x/128;
  float s[Mma<128>::R],o[Mma<D>::R]; uint32_t a[4]={0,0,0,0}; for(auto&x:s)x=0; for(auto&x:o)x=0;
  uint64_t A=desc(base+w*8192),B=desc(base+32768);
  __syncthreads(); uint32_t t=now(), acc=0, qk=0;
  if(w<groups) for(int i=0;i<steps;i++){
    uint32_t t0=now();
    fence();
    #pragma unroll
    for(int k=0;k<KQ;k++) Mma<128>::ss(s,A+2*(k&3),B+2*(k&3));
    commit();
    if(KP){
    #pragma unroll
    for(int k=0;k<KP;k++) if(RS) Mma<D>::rs(o,a,B+2*(k&3)); else Mma<D>::ss(o,A+2*(k&3),B+2*(k&3));
    commit(); }
    uint32_t t1=now(); acc+=t1-t0;
    if(KP) wait<1>(); else wait<0>();
    uint32_t t2=now(); qk+=t2-t0;
    if(work) spin(work);
    if(KP) wait<0>(); if(more) spin(more);
  }
  uint32_t t1=now();
  if(threadIdx.x%128==0){ out[w*4]=(t1-t)/steps; out[w*4+1]=acc/steps; out[w*4+2]=qk/steps; }
  float z=0; for(auto x:s)z+=x; for(auto x:o)z+=x; if(z==1.2345f) out[63]=1;
}
// FA3's loop without arithmetic: QK of the next iteration, PV, then 'work' cycles, then PV waited for, then 'more' cycles. mode 0 free, 1 ping-pong
template<int D,int NW,int MODE> __global__ void loop(uint32_t*out,int work,int more,int steps){
  clear(); uint32_t base=(uint32_t)__cvta_generic_to_shared(smem); int w=threadIdx.x/128;
  float s[Mma<128>::R],o[Mma<D>::R]; uint32_t a[4]={0,0,0,0}; for(auto&x:s)x=0; for(auto&x:o)x=0;
  uint64_t A=desc(base+w*8192),B=desc(base+32768);
  __syncthreads(); uint32_t t=now();
  if(MODE==1&&w>0) bararrive(1,256);  // the first turn is of warpgroup 0: the last one hands it over
  for(int i=0;i<steps;i++){
    if(MODE==1) barsync(1+w,256);
    fence();
    #pragma unroll
    for(int k=0;k<D/16;k++) Mma<128>::ss(s,A+2*(k&3),B+2*(k&3));
    commit();
    #pragma unroll
    for(int k=0;k<8;k++) Mma<D>::rs(o,a,B+2*(k&3));
    commit();
    if(MODE==1) bararrive(1+(w+1)%NW,256);
    wait<1>(); if(work) spin(work);
    wait<0>(); if(more) spin(more);
  }
  uint32_t t1=now();
  if(MODE==1&&w==0) barsync(1,256);
  if(threadIdx.x%128==0) out[w]=(t1-t)/steps;
  float z=0; for(auto x:s)z+=x; for(auto x:o)z+=x; if(z==1.2345f) out[63]=1;
}

__global__ void spins(uint32_t*out,int c){ for(int r=0;r<4;r++){ uint32_t t=now(); spin(c); uint32_t t1=now(); if(threadIdx.x==0) out[0]=t1-t; } for(int r=0;r<4;r++){uint32_t t=now(); uint32_t t1=now(); if(threadIdx.x==0) out[1]=t1-t;} uint32_t t=now(); for(int i=0;i<64;i++) spin(c); uint32_t t1=now(); if(threadIdx.x==0) out[2]=(t1-t)/64; }
static uint32_t*out; static uint32_t h[64];
#define GO(k,g,b,...) do{ cudaMemset(out,0,256); cudaFuncSetAttribute(k,cudaFuncAttributeMaxDynamicSharedMemorySize,170000); k<<<g,b,170000>>>(out,__VA_ARGS__); cudaError_t e=cudaDeviceSynchronize(); if(e){printf("error %s\n",cudaGetErrorString(e));return 1;} cudaMemcpy(h,out,256,cudaMemcpyDeviceToHost);}while(0)
template<int D,int K,int RS> int acc(){
  GO((accept<D,K,RS>),1,384,1,0); printf("n%d k-steps %2d %s: accepted %u, over %u\n",D,K,RS?"RS":"SS",h[1],h[2]); return 0; }
template<int D,int K,int RS> int arb(){
  for(int g=2;g<=3;g++) for(int delay:{0,32,64,128,256}){ GO((accept<D,K,RS>),1,384,g,delay);
   printf("n%d k-steps %2d %s, %d warpgroups %d apart:",D,K,RS?"RS":"SS",g,delay); for(int w=0;w<g;w++) printf("  [%u accepted %u over %u at %u]",h[4*w],h[4*w+1],h[4*w+2],h[4*w+3]); puts(""); } return 0; }
template<int D> int loops(){
  for(int more:{0,60,160}) for(int work:{0,200,400,600,700,800,900,1000,1100,1200,1400}){
    GO((loop<D,2,0>),1,256,work,more,64); uint32_t f=h[0];
    GO((loop<D,2,1>),1,256,work,more,64); uint32_t p=h[0];
    printf("d%d two warpgroups, work %4d more %3d: free %u ping-pong %u\n",D,work,more,f,p);} return 0; }

template<int D,int KQ,int KP,int RS> int ch(){ for(int g=1;g<=(KP?3:2);g++) for(int more:{0,60}) for(int work:{0,100,300,600,1000,1400}){ if(more&&work!=1000) continue; if(g==3&&D==128) continue; GO((chain<D,KQ,KP,RS>),1,g*128,g,work,more,64); printf("chain d%d QK %d PV %d %s, %d warpgroups, work %4d more %3d: period %u accepted %u QK over %u\n",D,KQ,KP,RS?"RS":"SS",g,work,more,h[0],h[1],h[2]); } return 0; }
int main(){ cudaMalloc(&out,256);
 for(int c:{0,1,20,40,60,80,100,160,1000}){ GO(spins,1,128,c); printf("spin %d: %u, clock %u, in a row %u\n",c,h[0],h[1],h[2]); }
 acc<128,1,0>();acc<128,2,0>();acc<128,3,0>();acc<128,4,0>();acc<128,5,0>();acc<128,6,0>();acc<128,7,0>();acc<128,8,0>();acc<128,9,0>();acc<128,10,0>();acc<128,12,0>();acc<128,16,0>();
 acc<64,4,0>();acc<64,6,0>();acc<64,8,0>();acc<64,10,0>();acc<64,12,0>();acc<64,16,0>();acc<64,24,0>();acc<64,32,0>();
 loops<128>();loops<64>();
 ch<128,1,0,0>();ch<128,2,0,0>();ch<128,4,0,0>();ch<128,8,0,0>();ch<128,16,0,0>();
 ch<128,8,8,1>();ch<64,4,8,1>();ch<64,4,4,1>();ch<128,8,4,1>();ch<128,4,8,0>();
 return 0; }
