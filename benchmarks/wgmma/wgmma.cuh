// wgmma of m64n64k16 and m64n128k16, named barriers and a clock, for the microbenchmarks beside this file. Operands are zero.
#pragma once
#include <cstdio>
#include <cstdint>
#include <cuda_runtime.h>
#define DEV __device__ __forceinline__
DEV uint32_t now(){uint32_t t;asm volatile("mov.u32 %0, %%clock;":"=r"(t)::"memory");return t;}
DEV void fence(){asm volatile("wgmma.fence.sync.aligned;":::"memory");}
DEV void commit(){asm volatile("wgmma.commit_group.sync.aligned;":::"memory");}
template<int N> DEV void wait(){asm volatile("wgmma.wait_group.sync.aligned %0;"::"n"(N):"memory");}
DEV void barsync(int id,int n){asm volatile("bar.sync %0, %1;"::"r"(id),"r"(n):"memory");}
DEV void bararrive(int id,int n){asm volatile("bar.arrive %0, %1;"::"r"(id),"r"(n):"memory");}
#define ACC(d) "+f"(d[0]),"+f"(d[1]),"+f"(d[2]),"+f"(d[3]),"+f"(d[4]),"+f"(d[5]),"+f"(d[6]),"+f"(d[7]),"+f"(d[8]),"+f"(d[9]),"+f"(d[10]),"+f"(d[11]),"+f"(d[12]),"+f"(d[13]),"+f"(d[14]),"+f"(d[15]),"+f"(d[16]),"+f"(d[17]),"+f"(d[18]),"+f"(d[19]),"+f"(d[20]),"+f"(d[21]),"+f"(d[22]),"+f"(d[23]),"+f"(d[24]),"+f"(d[25]),"+f"(d[26]),"+f"(d[27]),"+f"(d[28]),"+f"(d[29]),"+f"(d[30]),"+f"(d[31])
#define L32 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
#define ACC2(d) ACC(d),"+f"(d[32]),"+f"(d[33]),"+f"(d[34]),"+f"(d[35]),"+f"(d[36]),"+f"(d[37]),"+f"(d[38]),"+f"(d[39]),"+f"(d[40]),"+f"(d[41]),"+f"(d[42]),"+f"(d[43]),"+f"(d[44]),"+f"(d[45]),"+f"(d[46]),"+f"(d[47]),"+f"(d[48]),"+f"(d[49]),"+f"(d[50]),"+f"(d[51]),"+f"(d[52]),"+f"(d[53]),"+f"(d[54]),"+f"(d[55]),"+f"(d[56]),"+f"(d[57]),"+f"(d[58]),"+f"(d[59]),"+f"(d[60]),"+f"(d[61]),"+f"(d[62]),"+f"(d[63])
#define L64 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
template<int D> struct Mma;
template<> struct Mma<64>{ static constexpr int R=32;
 static DEV void ss(float*d,uint64_t a,uint64_t b){asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " L32 ", %32, %33, 1, 1, 1, 0, 0;":ACC(d):"l"(a),"l"(b):"memory");}
 static DEV void rs(float*d,uint32_t*a,uint64_t b){asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " L32 ", {%32,%33,%34,%35}, %36, 1, 1, 1, 0;":ACC(d):"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"l"(b):"memory");}};
template<> struct Mma<128>{ static constexpr int R=64;
 static DEV void ss(float*d,uint64_t a,uint64_t b){asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " L64 ", %64, %65, 1, 1, 1, 0, 0;":ACC2(d):"l"(a),"l"(b):"memory");}
 static DEV void rs(float*d,uint32_t*a,uint64_t b){asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " L64 ", {%64,%65,%66,%67}, %68, 1, 1, 1, 0;":ACC2(d):"r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]),"l"(b):"memory");}};
DEV uint64_t desc(uint32_t addr){return (uint64_t)((addr&0x3FFFF)>>4)|((uint64_t)1<<16)|((uint64_t)64<<32)|((uint64_t)1<<62);}
extern __shared__ __align__(1024) uint8_t smem[];
DEV void clear(){ for(int i=threadIdx.x;i<40960;i+=blockDim.x) ((uint32_t*)smem)[i]=0; asm volatile("fence.proxy.async;":::"memory"); __syncthreads(); }
DEV void spin(uint32_t c){ uint32_t t=now(); while(now()-t<c); }

