// Package seal encrypts what a master keeps on its disk, so that a copy of the disk reveals nothing
// without the key.
//
// Lives here: where the key comes from, boxes for small values, streams for large ones, and the
// mark of a sealed folder. Does not: decide what is sealed (packages cluster, ringstore and peer
// do).
//
// Guarantee: what a Box or a Reader opens was sealed with the same key, for the same purpose and
// place; anything else is an error.
package seal
