"""What names of kernels tell."""

import pytest

from tachoscope_analyzers.trace.events.kernel_names import class_of, is_communication, precision_of, tensor_cores_of
from trying import each

NAMES = {
    "communication": [
        "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
        "ncclSymDevKernel_AllGather_LL(ncclSymDevArgs)",
        "void mscclKernel_Sum_float_LL(ncclDevComm*)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*, vllm::RankSignals)",
        "void sglang::cross_device_reduce_2stage<half, 8>(sglang::RankData*)",
        "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16, 8>(tensorrt_llm::kernels::AllReduceParams)",
        "void tensorrt_llm::kernels::twoShotAllReduceKernel<half, 8>(tensorrt_llm::kernels::AllReduceParams)",
        "one_shot_all_reduce_kernel",
        "void c10d::symmetric_memory::two_shot_all_reduce_kernel_inplace<float, 16>",
        "multimem_all_reduce_kernel",
        "nvshmemi_transfer_rma_p2p",
        "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)",
        "void deep_ep::internode_ll::combine<true, 7168, 9>(void*)",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<half>>(half const*)",
        "void userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)",
    ],
    "gemm": [
        "volta_sgemm_128x64_nn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x48x64_MI16x16x1_SN",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(float)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
        "triton_tem_fused_addmm_3",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(pytorch_flash::Flash_fwd_params)",
        "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)",
        "void vllm::paged_attention_v2_kernel<__nv_bfloat16, 128>(float*)",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<1>(int)",
        "attn_fwd",
    ],
    "convolution": [
        "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
        "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_stage4_warpsize2x2x1_g1_tensor16x8x8",
    ],
    "elementwise": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &vllm::silu_kernel>(c10::BFloat16*)",
    ],
    "reduction": ["void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>(int)"],
    "normalisation": [
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        "void vllm::rms_norm_kernel<c10::BFloat16>(c10::BFloat16*)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
    ],
    "softmax": ["void (anonymous namespace)::softmax_warp_forward<float, float, float, 7, false, false>(float*)"],
    "embedding_gather": [
        "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>(at::Tensor)",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(float)",
        "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel>(int)",
        "void fbgemm_gpu::permute_2D_data_kernel<false, int, int>(int)",  # fbGEMM in the name makes no matrix product
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>>(int)",
        "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float>(int)",
    ],
    "random": ["void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(int)"],
    "sort_scan": ["void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>(int*)"],
    "triton_fused": ["triton_poi_fused_add_cos_sin_0", "triton_per_fused_all_reduce_5", "triton_red_fused__softmax_2"],
    "other": ["my_kernel", "", "pe_exe"],
}


@each(("expected", "name"), [(found, name) for found, names in NAMES.items() for name in names])
def test_the_name_tells_the_class(expected: str, name: str) -> None:
    assert class_of(name) == expected


def test_communication_is_told_for_many_names_at_once() -> None:
    names = ["volta_sgemm_128x64_nn", *NAMES["communication"]]
    assert is_communication(names).tolist() == [False] + [True] * len(NAMES["communication"])


def test_types_among_the_arguments_do_not_decide() -> None:
    assert class_of("void my_kernel<float>(at::native::reduce_kernel<512>, SoftMaxForward)") == "other"


@pytest.mark.parametrize(
    ("name", "cores", "precision"),
    [
        ("volta_sgemm_128x64_nn", "no", "fp32"),
        ("ampere_sgemm_32x128_tn", "no", "fp32"),
        ("cutlass_80_simt_sgemm_128x32_8x5_nn_align1", "no", "fp32"),
        ("cutlass_80_tensorop_s1688gemm_128x64_32x6_nt_align1", "yes", "tf32"),
        ("cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2", "yes", "bf16"),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", "yes", "fp16"),
        ("volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "yes", "fp16"),
        ("volta_h884gemm_64x128_ldg8_nn", "yes", "fp16"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64", "yes", "bf16"),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_tensor16x8x8", "yes", "tf32"),
        ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x48x64_MI16x16x1", "yes", "bf16"),
        ("Cijk_Alik_Bljk_HHS_BH_MT64x64x32_MI16x16x16x1", "yes", "fp16"),
        ("cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1", "no", "fp32"),
        ("attn_fwd", "unknown", "unknown"),
        ("triton_poi_fused_add_0", "not_applicable", "not_applicable"),
    ],
)
def test_matrix_kernels_tell_their_precision_and_whether_they_use_the_matrix_units(name: str, cores: str, precision: str) -> None:
    assert (tensor_cores_of(name), precision_of(name)) == (cores, precision)
