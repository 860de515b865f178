def ext_pillar(minion_id, pillar, *args, **kwargs):
    return {
        "owners": {
            minion_id: [list(args), kwargs],
            "saw": sorted(pillar),
            "fact": __salt__["facts.about"]()["id"],
            "master": __opts__["id"],
            "tuple": (1, 2),
        }
    }
