package daemon

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestACertificateNeverExpires: in two years each handshake gets one that is valid for another month, and it is made
// anew four to seven times a year.
func TestACertificateNeverExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served, serials := certificate{host: "node-1"}, map[string]bool{}
		for day := range 2 * 365 {
			pair, err := served.get(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf := pair.Leaf
			if leaf.NotBefore.After(time.Now()) || time.Until(leaf.NotAfter) < 29*24*time.Hour {
				t.Fatalf("on day %d the certificate is valid from %s to %s", day, leaf.NotBefore, leaf.NotAfter)
			}
			if err := leaf.VerifyHostname("node-1"); err != nil {
				t.Fatal(err)
			}
			serials[leaf.SerialNumber.String()] = true
			time.Sleep(24 * time.Hour)
		}
		if len(serials) < 8 || len(serials) > 14 {
			t.Errorf("%d certificates in two years", len(serials))
		}
	})
}
