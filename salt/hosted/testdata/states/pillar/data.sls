word: from the pillar
nested: {list: [1, two]}
