package cluster

import (
	"fmt"
	"path/filepath"
	"time"
)

// copiedFile says that another process ran with the identity in this data directory. It stays until
// an operator deletes it: a copy that is started again and again would take the other one's place
// while that is restarted.
const copiedFile = "copied.json"

// copied is the content of copiedFile.
type copied struct {
	At    time.Time `json:"at"`    // by this master's clock
	By    string    `json:"by"`    // address of the member that said so
	Rival string    `json:"rival"` // address of the other process
}

// checkCopy refuses a data directory that was found to be a copy.
func (n *Node) checkCopy() error {
	var c copied
	if found, err := readJSON(filepath.Join(n.cfg.DataDir, copiedFile), &c); err != nil || !found {
		return err
	}
	return n.copyError(c)
}

// endAsCopy ends this master: the member at addr said that another process runs with its node key.
// Two of them would vote as one member, and each would lack what the other one stored.
func (n *Node) endAsCopy(addr, rival string) error {
	c := copied{At: time.Now().UTC(), By: addr, Rival: rival}
	err := n.copyError(c)
	if werr := writeJSON(filepath.Join(n.cfg.DataDir, copiedFile), c); werr != nil {
		n.log.Error("the mark of a copied data directory was not saved: this master asks again at its next start",
			"err", werr)
	}
	n.stop(err)
	return err
}

func (n *Node) copyError(c copied) error {
	return fmt.Errorf("the master %s runs at %s already, with a copy of the data directory %s (%s said so at %s). "+
		"To make this machine another master, move that folder to another place and set another id. To let it take over "+
		"from the other one, stop that for good, delete %s, and start this master again. Nothing else was changed",
		n.self.ID, c.Rival, n.cfg.WholeDir, c.By, c.At.Format(time.DateTime),
		filepath.Join(n.cfg.DataDir, copiedFile))
}
