package render

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// forgetEmbedded lets the kernel drop the binary's constant data from this process's
// memory. Most of it is the compressed Python, which was just read. The kernel reads any
// part again when it is used.
func forgetEmbedded() {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var from, to uintptr
		fields := strings.Fields(lines.Text())
		if len(fields) != 6 || fields[1] != "r--p" || fields[5] != exe {
			continue
		}
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err == nil {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED)
		}
	}
}
