//go:build linux

package conntrack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// udpMessage is a message of a dump: nfgenmsg; both tuples; status, timeout, mark; the zone 7; the ID; the use count.
var udpMessage = unhex(`
	02000000
	3400 0180
		1400 0180  0800 0100 0af40109  0800 0200 0a60000a
		1c00 0280  0500 0100 11000000  0600 0200 9c400000  0600 0300 00350000
	3400 0280
		1400 0180  0800 0100 0af40101  0800 0200 0af40109
		1c00 0280  0500 0100 11000000  0600 0200 1f750000  0600 0300 9c400000
	0800 0300 0000018e
	0800 0700 0000001d
	0800 0800 00000000
	0600 1200 00070000
	0800 0c00 1234abcd
	0800 0b00 00000001`)

func unhex(text string) []byte {
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		panic(err)
	}
	return b
}

func TestAnEntryIsReadFromItsMessage(t *testing.T) {
	var e Entry
	if err := e.parse(udpMessage); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort
	want := Entry{
		Protocol: model.UDP,
		Original: Tuple{at("10.244.1.9:40000"), at("10.96.0.10:53")}, Reply: Tuple{at("10.244.1.1:8053"), at("10.244.1.9:40000")},
		Status: 0x18e, ID: 0x1234abcd, Zone: 7,
	}
	if e != want {
		t.Errorf("read %+v, want %+v", e, want)
	}
	// The kernel identifies the entry to delete by the reply tuple, the zone and the ID.
	key, err := e.key()
	wantKey := append(bytes.Clone(udpMessage[4+0x34:4+2*0x34]), unhex("0600120000070000 08000c001234abcd")...)
	if !bytes.Equal(key, wantKey) || err != nil {
		t.Errorf("key %x, %v; want %x", key, err, wantKey)
	}
	if want := "UDP from 10.244.1.9 to 10.96.0.10:53, replies from 10.244.1.1:8053"; e.String() != want {
		t.Errorf("String() = %q, want %q", &e, want)
	}
}

func TestReadingAnEntryAllocatesNothing(t *testing.T) {
	var e Entry
	if n := testing.AllocsPerRun(100, func() { _ = e.parse(udpMessage) }); n != 0 {
		t.Errorf("%v allocations per entry, want none", n)
	}
}

func TestATruncatedMessageIsAnError(t *testing.T) {
	var e Entry
	complete := 4 + 2*0x34 // up to the end of the tuples
	for size := range complete {
		if err := e.parse(udpMessage[:size]); !errors.Is(err, errMalformed) {
			t.Errorf("the first %d bytes were read as %s, %v; want an error", size, &e, err)
		}
	}
	if err := e.parse(udpMessage[:complete]); err != nil {
		t.Errorf("the tuples alone gave %v, want no error", err)
	}
}

func FuzzNoMessageIsReadBeyondItsEnd(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 0, 0, 4, 0, 1, 0x80})
	f.Add(udpMessage)
	f.Fuzz(func(t *testing.T, message []byte) {
		var e Entry
		err := e.parse(slices.Clip(message))
		if err == nil && (!e.OrigSrc().IsValid() || !e.OrigDst().IsValid() || !e.ReplySrc().IsValid()) {
			t.Errorf("%x was read as %s", message, &e)
		}
		if _, keyErr := e.key(); err == nil && keyErr != nil {
			t.Errorf("%x has no key: %v", message, keyErr)
		}
		_, _ = eachMessage(slices.Clip(message), func([]byte) (bool, error) { return true, nil })
	})
}

func TestMissingPrerequisitesAreExplained(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no privilege":  {unix.EPERM, "run as root"},
		"no module":     {unix.EINVAL, "load the module nf_conntrack_netlink"},
		"no netlink":    {unix.EPROTONOSUPPORT, "load the module nf_conntrack_netlink"},
		"another error": {unix.ENOMEM, "connect to conntrack: cannot allocate memory"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := explainSetupError(c.err); !errors.Is(got, c.err) || !strings.Contains(got.Error(), c.want) {
				t.Errorf("the error is %q, want one with %q that wraps %v", got, c.want, c.err)
			}
		})
	}
}
