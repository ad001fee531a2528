def memory_page(file, chip, fits):
    return ""
