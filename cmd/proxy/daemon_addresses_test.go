package main

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

func TestBindFailureIsFatalWithHardFail(t *testing.T) {
	for name, test := range map[string]struct{ flag, stderr string }{
		"an address in use": {
			"--metrics-bind-address 127.0.0.1:9",
			"proxy: --metrics-bind-address: listen tcp 127.0.0.1:9: bind: address already in use\n",
		},
		"an address of another host": {
			"--healthz-bind-address 192.0.2.1:9",
			"proxy: --healthz-bind-address: listen tcp 192.0.2.1:9: bind: cannot assign requested address\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			namespace := netns.New(t)
			listenIn(t, namespace, "127.0.0.1:9")
			program, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			command := namespace.Command(program,
				splitArgs("run --node node-a --log-level error --bind-address-hard-fail --manifests "+stateFolder+" "+test.flag)...)
			command.Env = append(os.Environ(), asProxy+"=1")
			var stderr strings.Builder
			command.Stderr = &stderr
			namespace.Do(func() { err = command.Run() })
			if status := command.ProcessState.ExitCode(); status != 1 || stderr.String() != test.stderr {
				t.Errorf("status %d (%v) and %q, want 1 and %q", status, err, &stderr, test.stderr)
			}
		})
	}
}

// TestAddressIsServedOnceItIsFree: at first the address of the daemon's pages is in use. Services are served meanwhile,
// and the pages as soon as the address is free.
func TestAddressIsServedOnceItIsFree(t *testing.T) {
	namespace := netns.New(t)
	taken := listenIn(t, namespace, "127.0.0.1:9")
	d := startDaemon(t, namespace, splitArgs("--manifests "+stateFolder+" --metrics-bind-address 127.0.0.1:9")...) // the first sync is done
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the metrics are served", func() bool { return d.listens("127.0.0.1:9") })
	if status, body := d.get(t, "127.0.0.1:9", "/metrics"); status != 200 || !strings.Contains(body, "vicinity_") {
		t.Errorf("status %d, %d bytes; want metrics", status, len(body))
	}
	const want = "level=ERROR msg=\"failed to serve on an address; retrying\""
	if result := d.stop(t); result.status != 0 || strings.Count(result.stderr, want) != 1 {
		t.Errorf("exited with %+v, want status 0 and one line with %q", result, want)
	}
}

func listenIn(t *testing.T, namespace *netns.Namespace, address string) net.Listener {
	t.Helper()
	var listener net.Listener
	var err error
	namespace.Do(func() { listener, err = net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}
