def ext_pillar(minion_id, pillar, text):
    raise KeyError(text + " for " + minion_id)
