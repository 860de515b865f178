def where():
    return "module_dirs"
