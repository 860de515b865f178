import no_module_of_that_name


def ext_pillar(minion_id, pillar):
    return {"unloadable": True}
