include:
  - given_told:
      defaults: {word: hello, list: [1, two]}
