// Package localbus lets processes of the master's machine hear and fire events as on the event bus
// of a Salt master: through the sockets master_event_pub.ipc and master_event_pull.ipc in sock_dir,
// with the bytes that Salt's own clients read and write.
//
// Lives here: the two sockets and who may use them, the frames of both, how the frames of a
// listener's release are told, the queue of each listener, and publish_pull.ipc and workers.ipc,
// the files by which Salt's clients and salt-api see that a master runs.
//
// Does not: carry events between masters (package event), take orders (package master, on port
// 4506), know what a tag means.
//
// Guarantee: a listener hears every event of the cluster from when the kernel took its connection
// until it reads too slowly; then its connection ends, so that what it heard has no gap. Nobody but
// root and the master's user hears or fires anything.
package localbus
