package master

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"clustermaster/store/allotment"
	"clustermaster/value"
	"clustermaster/wire"
)

// maxPushedPath bounds the path of a pushed file, in bytes.
const maxPushedPath = 700

// fileRecv receives a piece of a file that a minion pushes (cp.push).
func (m *Master) fileRecv(ctx context.Context, c *call) (any, error) {
	if !m.opts.FileRecv || m.deps.Pushed == nil || c.ID == "" || !wire.ValidID(c.ID) {
		return false, nil
	}
	rawPath, hasPath := c.Load.Get("path")
	rawLoc, hasLoc := c.Load.Get("loc")
	rawData, hasData := c.Load.Get("data")
	if !hasPath || !hasLoc {
		return false, nil
	}
	if !hasData {
		return nil, errors.New("a piece of a file without data")
	}
	loc, ok := rawLoc.Int()
	data, isBytes := rawData.Bytes()
	if !ok || !isBytes || loc < 0 || loc > m.opts.FileRecvMaxSize ||
		int64(len(data))+loc > m.opts.FileRecvMaxSize {
		return false, nil
	}
	name, ok := pushedPath(rawPath)
	if !ok {
		return false, nil
	}
	size := int64(-1)
	if raw, given := c.Load.Get("size"); given {
		if n, isInt := raw.Int(); isInt {
			size = n
		}
	}
	if size > m.opts.FileRecvMaxSize {
		return false, nil
	}
	if err := m.space(c); err != nil {
		return nil, err
	}
	if !m.ownFiles.take(c.ID, int64(len(data)), m.steady()) {
		m.refused.note("quota_files", c.ID, c.remote)
		return false, nil
	}
	kept, err := m.deps.Pushed.Append(ctx, c.ID, name, loc, size, data)
	if errors.Is(err, allotment.ErrSpent) {
		return false, m.quotaOf(c, "quota_files", err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: keep pushed file of %q: %w", errUnacknowledged, c.ID, err)
	}
	return kept, nil
}

// pushedPath joins the components of a path, which must be a list and stay below the minion's
// folder.
func pushedPath(raw value.Raw) (string, bool) {
	v, err := raw.Unpack()
	list, isList := v.([]any)
	if err != nil || !isList || len(list) == 0 {
		return "", false
	}
	parts := make([]string, len(list))
	for i, p := range list {
		if parts[i], isList = p.(string); !isList {
			return "", false
		}
		if strings.HasPrefix(parts[i], "/") && i > 0 {
			return "", false // Python's join would start from the root there
		}
	}
	joined := path.Clean(strings.Join(parts, "/"))
	if joined == "." || joined == ".." || strings.HasPrefix(joined, "/") ||
		strings.HasPrefix(joined, "../") || len(joined) > maxPushedPath ||
		strings.ContainsAny(joined, "\x00\\") {
		return "", false
	}
	return joined, true
}
