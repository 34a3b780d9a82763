package daemon

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificateAge is how long a certificate of ours is valid.
const certificateAge = 90 * 24 * time.Hour

// certificate is self-signed, for a TLS server whose clients need not trust it. The first handshake in the last third
// of its time gets a new one: a proxy may run for years.
type certificate struct {
	host string

	mutex sync.Mutex
	pair  tls.Certificate
}

// get is for tls.Config.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.pair.Leaf == nil || time.Until(c.pair.Leaf.NotAfter) < certificateAge/3 {
		pair, err := c.make()
		if err != nil {
			return nil, err
		}
		c.pair = pair
	}
	pair := c.pair
	return &pair, nil
}

func (c *certificate) make() (tls.Certificate, error) {
	text, key, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: c.host, MaxAge: certificateAge})
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making a certificate for %q: %w", c.host, err)
	}
	pair, err := tls.X509KeyPair(text, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("reading the certificate made for %q: %w", c.host, err)
	}
	return pair, nil
}
