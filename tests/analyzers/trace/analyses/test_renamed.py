import pytest
from hypothesis import given
from hypothesis import strategies as st

from tachoscope_analyzers.trace.analyses.normalised_kernel_names import base_name, operator_name, without_details

GELU = "void at::native::vectorized_elementwise_kernel<{}, at::native::GeluCUDAKernelImpl(float), std::array<char*, 2ul> >(int)"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("volta_sgemm_128x64_tn", "ampere_sgemm_64x32_tn"),
        (
            "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_stage3",
            "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_stage4",
        ),
        ("triton_poi_fused_add_relu_12", "triton_poi_fused_add_relu_7"),
        ("_fwd_kernel_0d1d2d3de4de", "_fwd_kernel_0d1d2d3d4d"),
        ("my_kernel_9f3ab12c77de", "my_kernel_0a1b2c3d4e5f"),
        (
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        ),
        (GELU.format(2), GELU.format(4)),
        ("void kernel<float>(float*, int)", "void kernel<float>(float*, long)"),
    ],
)
def test_the_same_kernel_of_another_build_shape_or_device_has_the_same_name(one: str, other: str) -> None:
    assert without_details(one) == without_details(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("volta_sgemm_128x64_tn", "volta_sgemm_128x64_nn"),
        ("volta_sgemm_128x64_tn", "volta_hgemm_128x64_tn"),
        ("triton_poi_fused_add_1", "triton_poi_fused_mul_1"),
        ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pinned)"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclDevKernel_AllGather_RING_LL"),
        (GELU.format(4), GELU.format(4).replace("Gelu", "Silu")),
        ("sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n"),
        ("gemm_f32_kernel", "gemm_f16_kernel"),
    ],
)
def test_another_kernel_keeps_another_name(one: str, other: str) -> None:
    assert without_details(one) != without_details(other)


def test_the_base_name_is_the_function_alone_mangled_or_not() -> None:
    plain = "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, 2>(at::cuda::TensorInfo<float, long>)"
    assert base_name(plain) == "indexselectlargeindex"
    assert base_name("_ZN2at6native12_GLOBAL__N_121indexSelectLargeIndexIfliEEvPT_") == "indexselectlargeindex"


def test_versions_of_an_operator_are_one() -> None:
    assert operator_name("AddmmBackward0") == operator_name("AddmmBackward")


@given(st.text())
def test_any_text_has_names(name: str) -> None:
    assert isinstance(without_details(name), str) and isinstance(base_name(name), str) and isinstance(operator_name(name), str)


@given(st.text(alphabet="_ZNIE0123456789at<>(:) ", max_size=60))
def test_broken_names_of_cpp_have_names_too(name: str) -> None:
    assert isinstance(base_name(f"_Z{name}"), str)
