package render

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// forgetEmbedded tells the kernel that the binary's constant data, most of it the
// compressed Python that was just read, need not stay in this process's memory.
// What is used again is read again.
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
