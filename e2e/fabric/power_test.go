package fabric

import (
	"bytes"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

func TestPowerOffDeletesStateOfNode(t *testing.T) {
	f, err := New()
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	near, far := add(t, f.AddNode, "near"), add(t, f.AddNode, "far")
	add(t, far.AddPod, "pod")
	listener, err := far.Listen("tcp", "[::]:8080")
	must(t, err)
	t.Cleanup(func() { listener.Close() })
	to := net.JoinHostPort(far.IPv4.String(), "8080")
	dial := func() error {
		conn, err := near.Dial("tcp", to, 300*time.Millisecond)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	// The first packet may be lost while a new link comes up; the kernel repeats the neighbour solicitation after a
	// second.
	wait.Until(t, "the node responds", func() bool { return dial() == nil })
	must(t, far.Do(func() error { return exec.Command("nft", "add table ip rules").Run() }))

	must(t, far.PowerOff(func() error {
		if err := dial(); err == nil || !strings.Contains(err.Error(), "timeout") {
			t.Errorf("connection while the node's processes end: got %v, want a timeout", err)
		}
		return nil
	}))
	must(t, far.PowerOn())
	wait.Until(t, "the node responds again", func() bool { return dial() == nil })
	var rules bytes.Buffer
	must(t, far.Do(func() error {
		list := exec.Command("nft", "list", "ruleset")
		list.Stdout = &rules
		return list.Run()
	}))
	if rules.Len() > 0 {
		t.Errorf("rules after the power failure:\n%s", &rules)
	}
	links, err := far.links.LinkList()
	must(t, err)
	for _, link := range links {
		if name := link.Attrs().Name; strings.HasPrefix(name, PodLinkPrefix) {
			t.Errorf("link %s exists after the power failure", name)
		}
	}
}
