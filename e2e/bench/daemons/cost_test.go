package daemons_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// cost is the resource usage of a daemon during a measurement, including programs that it ran and that have ended:
// kube-proxy runs nft.
type cost struct {
	cpu      time.Duration
	duration time.Duration
}

// measure measures the daemon for the given time.
func (d *daemon) measure(b *testing.B, duration time.Duration) cost {
	b.Helper()
	before, started := d.cpuTime(b), time.Now()
	time.Sleep(duration)
	return cost{cpu: d.cpuTime(b) - before, duration: time.Since(started)}
}

// ticksPerSecond is the unit of /proc/PID/stat. USER_HZ is 100 on all architectures that Go supports except Alpha
// (proc(5)).
const ticksPerSecond = 100

// cpuTime returns the sum of utime, stime, cutime and cstime of /proc/PID/stat: fields 14 to 17.
func (d *daemon) cpuTime(b *testing.B) time.Duration {
	b.Helper()
	text := d.proc(b, "stat")
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:]) // the name before it may contain any character
	var ticks int64
	for _, field := range fields[14-3 : 17-3+1] {
		number, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		ticks += number
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// memory returns the daemon's current and peak resident memory in bytes, without the programs that it runs.
func (d *daemon) memory(b *testing.B) (current, peak int64) {
	b.Helper()
	for line := range strings.Lines(d.proc(b, "status")) {
		var kibibytes int64
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kibibytes); err == nil {
			current = kibibytes << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kibibytes); err == nil {
			peak = kibibytes << 10
		}
	}
	if current == 0 || peak == 0 {
		b.Fatalf("/proc/%d/status has no VmRSS or no VmHWM", d.process.PID())
	}
	return current, peak
}

func (d *daemon) proc(b *testing.B, file string) string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.process.PID()), file))
	if err != nil {
		b.Fatal(err)
	}
	return string(text)
}
