package daemon

import (
	"crypto/tls"
	"fmt"
	"time"

	"k8s.io/client-go/util/cert"
)

// certificateAge is longer than the lifetime of any proxy process.
const certificateAge = 10 * 365 * 24 * time.Hour

// selfSigned returns a certificate for a TLS server whose clients need not trust it.
func selfSigned(host string) (tls.Certificate, error) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKeyWithOptions(cert.SelfSignedCertKeyOptions{Host: host, MaxAge: certificateAge})
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("create certificate for %q: %w", host, err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("parse generated certificate for %q: %w", host, err)
	}
	return pair, nil
}
