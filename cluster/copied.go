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
	At     time.Time `json:"at"`     // by this master's clock
	By     string    `json:"by"`     // address of the member that said so
	Reason string    `json:"reason"` // names the address of the other process
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
func (n *Node) endAsCopy(addr, reason string) error {
	c := copied{At: time.Now().UTC(), By: addr, Reason: reason}
	err := n.copyError(c)
	if werr := writeJSON(filepath.Join(n.cfg.DataDir, copiedFile), c); werr != nil {
		n.log.Error("the mark of a copied data directory was not saved: this master asks again at its next start",
			"err", werr)
	}
	n.stop(err)
	return err
}

func (n *Node) copyError(c copied) error {
	return fmt.Errorf("%s, said %s at %s. To make this machine another master, move %s to another place and set another "+
		"id. To let it take over from the other one, stop that for good, delete %s, and start this master again. Nothing "+
		"else was changed", c.Reason, c.By, c.At.Format(time.DateTime), n.cfg.WholeDir,
		filepath.Join(n.cfg.DataDir, copiedFile))
}
