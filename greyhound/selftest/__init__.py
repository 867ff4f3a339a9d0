"""Proof on the user's own GPUs, NCCL and torch that the hook sees every call, changes nothing and costs little."""
