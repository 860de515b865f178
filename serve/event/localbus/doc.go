// Package localbus lets processes of the master's machine receive and fire events as on the event
// bus of a Salt master: through the sockets master_event_pub.ipc and master_event_pull.ipc in
// sock_dir, with the bytes that Salt's own clients read and write.
//
// Lives here: the two sockets and who may use them, the frames of both, how to recognize the frames
// of a listener's release, the queue of each listener, and publish_pull.ipc and workers.ipc, the
// files by which Salt's clients and salt-api see that a master runs.
//
// Does not: carry events between masters (package event), take orders (package master, on port
// 4506), know the meaning of a tag.
//
// Guarantee: a listener receives every event that processes of this machine fire after it
// connected, and all others from a moment later, until it reads too slowly; then its connection
// ends, so that it sees no gap. Only root and the master's user can receive or fire events.
package localbus
