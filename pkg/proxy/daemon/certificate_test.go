package daemon

import (
	"testing"
	"time"
)

func TestTheCertificateOutlivesTheProxy(t *testing.T) {
	pair, err := selfSigned("node-1")
	if err != nil {
		t.Fatal(err)
	}
	if leaf := pair.Leaf; leaf.NotBefore.After(time.Now()) || time.Until(leaf.NotAfter) < certificateAge-24*time.Hour {
		t.Errorf("the certificate is valid from %s to %s", leaf.NotBefore, leaf.NotAfter)
	}
	if err := pair.Leaf.VerifyHostname("node-1"); err != nil {
		t.Error(err)
	}
}
