def ext_pillar(minion_id, pillar):
    return {"counted": {"keys": len(pillar), "again": __salt__["facts.again"]()}}
