//go:build linux

package conntrack

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// udpMessage is a message of a dump: nfgenmsg; both tuples; status, timeout, mark; the zone 7; the id; how often it is
// used.
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
	e, err := parseEntry(udpMessage)
	if err != nil {
		t.Fatal(err)
	}
	want := flowOf("10.244.1.9:40000", "10.96.0.10:53", "10.244.1.1:8053")
	if want.inZone = true; e.flow != want || e.protocol != model.UDP {
		t.Errorf("read %s, want %v", e, want)
	}
	// The reply tuple, the zone and the id are what the kernel looks for when it deletes.
	if want := append(bytes.Clone(udpMessage[4+0x34:4+2*0x34]), unhex("0600120000070000 08000c001234abcd")...); !bytes.Equal(e.key, want) {
		t.Errorf("its key is %x, want %x", e.key, want)
	}
	if want := "UDP from 10.244.1.9 to 10.96.0.10:53, answered by 10.244.1.1:8053"; e.String() != want {
		t.Errorf("it is described as %q, want %q", e, want)
	}
}

func TestAMessageThatIsCutOffIsAnError(t *testing.T) {
	whole := 4 + 2*0x34 // up to the end of the tuples
	for size := range whole {
		if e, err := parseEntry(udpMessage[:size]); !errors.Is(err, errUnreadable) {
			t.Errorf("the first %d bytes were read as %s, %v; want an error", size, e, err)
		}
	}
	if _, err := parseEntry(udpMessage[:whole]); err != nil {
		t.Errorf("the tuples alone gave %v, want them to be enough", err)
	}
}

func FuzzNoMessageIsReadBeyondItsEnd(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 0, 0, 0, 4, 0, 1, 0x80})
	f.Add(udpMessage)
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := parseEntry(slices.Clip(message))
		if err == nil && (!e.client.IsValid() || !e.dialled.IsValid() || !e.answerer.IsValid()) {
			t.Errorf("%x was read as %s", message, e)
		}
		if len(e.key) > len(message) {
			t.Errorf("the key has %d bytes, of a message of %d", len(e.key), len(message))
		}
	})
}
