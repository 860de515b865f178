package pytext

import (
	"fmt"
	"time"
)

// other writes values that have no Python literal here: dates as str() gives them, everything else by its own String method.
func other(v any) string {
	switch x := v.(type) {
	case time.Time:
		return x.Format("2006-01-02 15:04:05.999999")
	case fmt.Stringer:
		return x.String()
	}
	return fmt.Sprint(v)
}
