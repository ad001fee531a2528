"""What a program holds and what users pass: tensors, tiles, numbers, task ids; and the checks of them."""
