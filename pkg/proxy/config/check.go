package config

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/sysctl"
)

// checker reads values, and collects the errors of invalid ones.
type checker struct{ fieldErrors []FieldError }

func (c *checker) addError(field, format string, args ...any) {
	c.fieldErrors = append(c.fieldErrors, FieldError{Field: field, Reason: fmt.Sprintf(format, args...)})
}

// err returns all field errors; nil if there are none.
func (c *checker) err() error {
	var errs []error
	for _, fieldError := range c.fieldErrors {
		errs = append(errs, fmt.Errorf("%s: %s", fieldError.Field, fieldError.Reason))
	}
	return errors.Join(errs...)
}

func (c *checker) oneOf(field, value string, allowed ...string) string {
	if !slices.Contains(allowed, value) {
		c.addError(field, "%q must be one of: %s", value, strings.Join(allowed, ", "))
	}
	return value
}

func (c *checker) positive(field string, value time.Duration) time.Duration {
	if value <= 0 {
		c.addError(field, "%s must be more than 0", value)
	}
	return value
}

func (c *checker) checkAddress(field, value string) {
	if _, err := netip.ParseAddr(value); err != nil {
		c.addError(field, "%q is not an IP address", value)
	}
}

// listenAddress accepts IP:PORT, and :PORT for all addresses of the machine. Port 0 means any free port.
func (c *checker) listenAddress(field, value string) string {
	host, port, err := net.SplitHostPort(value)
	if err != nil {
		c.addError(field, "%q is not IP:PORT, such as 127.0.0.1:10249", value)
		return value
	}
	if host != "" {
		c.checkAddress(field, host)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		c.addError(field, "%q is not a port number, 0 to 65535", port)
	}
	return value
}

// checkDistinctAddresses rejects the same address for two servers early, where the message can name both.
func (c *checker) checkDistinctAddresses(from *Configuration) {
	address := from.MetricsBindAddress
	if address == from.HealthzBindAddress && !strings.HasSuffix(address, ":0") {
		c.addError("metricsBindAddress", "%s is also healthzBindAddress: each server needs its own", address)
	}
}

func (c *checker) connection(from *Configuration) Connection {
	client := from.ClientConnection
	if qps := float64(client.QPS); math.IsNaN(qps) || math.IsInf(qps, 0) {
		c.addError("clientConnection.qps", "%v is not a finite number", qps)
	}
	return Connection{
		Kubeconfig:         client.Kubeconfig,
		AcceptContentTypes: client.AcceptContentTypes,
		ContentType:        client.ContentType,
		QPS:                client.QPS,
		Burst:              int(c.notNegative("clientConnection.burst", client.Burst)),
	}
}

func (c *checker) notNegative(field string, value int32) int32 {
	if value < 0 {
		c.addError(field, "%d is less than 0", value)
	}
	return value
}

// conntrack reads a section whose defaults are set.
func (c *checker) conntrack(from *v1alpha1.KubeProxyConntrackConfiguration) sysctl.Conntrack {
	return sysctl.Conntrack{
		MaxPerCore:            c.notNegative("conntrack.maxPerCore", *from.MaxPerCore),
		Min:                   c.notNegative("conntrack.min", *from.Min),
		TCPEstablishedTimeout: c.timeout("conntrack.tcpEstablishedTimeout", *from.TCPEstablishedTimeout),
		TCPCloseWaitTimeout:   c.timeout("conntrack.tcpCloseWaitTimeout", *from.TCPCloseWaitTimeout),
		TCPBeLiberal:          from.TCPBeLiberal,
		UDPTimeout:            c.timeout("conntrack.udpTimeout", from.UDPTimeout),
		UDPStreamTimeout:      c.timeout("conntrack.udpStreamTimeout", from.UDPStreamTimeout),
	}
}

// timeout accepts the values that the kernel supports: whole seconds, and 0 to leave the kernel's value unchanged.
func (c *checker) timeout(field string, value metav1.Duration) time.Duration {
	switch seconds := value.Seconds(); {
	case seconds < 0:
		c.addError(field, "%s is less than 0", value.Duration)
	case seconds > 0 && seconds < 1:
		c.addError(field, "%s is less than a second, the kernel's resolution", value.Duration)
	case seconds > math.MaxInt32:
		c.addError(field, "%s exceeds the kernel's maximum", value.Duration)
	}
	return value.Duration
}

func (c *checker) oomScoreAdj(value *int32) *int32 {
	if value != nil && (*value < -1000 || *value > 1000) {
		c.addError("oomScoreAdj", "%d is not between -1000 and 1000", *value)
	}
	return value
}
