package main

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// asProbe makes the test binary a probe.
const asProbe = "VICINITY_TEST_PROBE"

func TestMain(m *testing.M) {
	if os.Getenv(asProbe) != "" {
		os.Args = []string{"probe", "serve"}
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// output is what a program says, while it says it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) contains(words string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.text.String(), words)
}

// startProbe starts a probe in a pod's network, where its ports are free.
func startProbe(t *testing.T, environment ...string) (*fabric.Pod, *fabric.Process, *output) {
	t.Helper()
	network, err := fabric.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	node, err := network.AddNode("node-1")
	if err != nil {
		t.Fatal(err)
	}
	pod, err := node.AddPod("web-1")
	if err != nil {
		t.Fatal(err)
	}
	said := &output{}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), asProbe+"=1", "POD_NAME=web-1"), environment...)
	cmd.Stdout, cmd.Stderr = said, said
	process, err := pod.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the probe serves", func() bool { return said.contains("web-1 serves") })
	return pod, process, said
}

// answersIn asks the probe of a pod who it is.
func answersIn(t *testing.T, pod *fabric.Pod) string {
	t.Helper()
	conn, err := pod.Node.Dial("tcp", net.JoinHostPort(pod.IPv4.String(), "8080"), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server, client, err := greet(conn, "tcp")
	if err != nil {
		t.Fatal(err)
	}
	return server + " " + client
}

func TestAProbeGoesOnForItsGracePeriod(t *testing.T) {
	pod, process, said := startProbe(t, "GRACE=10m")
	want := "web-1 " + pod.Node.IPv4.String()
	if got := answersIn(t, pod); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the probe was told to end", func() bool { return said.contains("web-1 goes on for 10m") })
	if got := answersIn(t, pod); got != want {
		t.Errorf("while it ends: got %q, want %q", got, want)
	}
}

func TestAProbeWithoutAGracePeriodEndsAtOnce(t *testing.T) {
	_, process, _ := startProbe(t)
	if err := process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := process.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestAProbeWithoutANameDoesNotStart(t *testing.T) {
	t.Setenv("POD_NAME", "")
	if err := run(t.Context(), []string{"serve"}, &output{}); err == nil || !strings.Contains(err.Error(), "POD_NAME") {
		t.Errorf("got error %v", err)
	}
}

func TestAnUnknownCommandIsExplained(t *testing.T) {
	for _, args := range [][]string{{}, {"server"}, {"serve", "all"}, {"sabotage"}} {
		if err := run(t.Context(), args, &output{}); err == nil || !strings.Contains(err.Error(), "probe serve") {
			t.Errorf("%v: got error %v", args, err)
		}
	}
}
