package bench_test

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
)

// memory returns the value of a line of /proc/self/status, in bytes.
func memory(b *testing.B, name string) int64 {
	b.Helper()
	file, err := os.Open("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 3 && fields[0] == name+":" {
			kibibytes, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kibibytes << 10
		}
	}
	b.Fatalf("/proc/self/status has no %s", name)
	return 0
}

func resetPeakMemory(b *testing.B) {
	b.Helper()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // resets VmHWM (proc(5))
		b.Fatal(err)
	}
}
