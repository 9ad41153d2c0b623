"""Trainings that the kernel kills for want of memory, and ones that only look as if: what does tachoscope say of them?"""
