package controlplane

import (
	"context"
	"fmt"
	"net"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
)

// AdminConfig returns a client configuration with cluster-admin rights. It is a copy that the caller may change.
func (c *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// ClientConfig returns the configuration of a client that authenticates as a user in groups with a certificate. RBAC
// determines its rights.
func (c *ControlPlane) ClientConfig(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.authority.Client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := c.anonymous()
	config.CertData, config.KeyData = pair.Certificate, pair.Key
	return config, nil
}

// ServiceAccountConfig returns the configuration of a client that authenticates as a ServiceAccount, which must exist,
// with a token that is valid for one hour.
func (c *ControlPlane) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	request := &authenticationv1.TokenRequest{}
	response, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	config := c.anonymous()
	config.BearerToken = response.Status.Token
	return config, nil
}

// anonymous returns the configuration of a client without credentials.
func (c *ControlPlane) anonymous() *rest.Config {
	return &rest.Config{
		Host:            c.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.Certificate()},
		Dial:            c.dialer(),
		// The default of 5 requests per second is for programs that share an API server with others.
		QPS: -1,
	}
}

// dialTimeout bounds connecting to the API server from a client of this process.
const dialTimeout = 10 * time.Second

// dialer returns a function with which clients of this process connect from the API server's network namespace, to
// addresses and not to names. It returns nil, the default, if that is the caller's namespace.
func (c *ControlPlane) dialer() func(ctx context.Context, network, address string) (net.Conn, error) {
	if c.config.Netns == (process.CurrentNamespace{}) {
		return nil
	}
	return func(ctx context.Context, network, address string) (connection net.Conn, err error) {
		err = c.config.Netns.Do(func() (err error) {
			connection, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
			return err
		})
		return connection, err
	}
}

// WriteKubeconfig writes a client configuration as a kubeconfig file that only the file's owner may read. The
// file omits the configuration's dialer.
func WriteKubeconfig(path string, config *rest.Config) error {
	const name = "lab"
	kubeconfig := clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: config.Host, CertificateAuthorityData: config.CAData},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
	if err := clientcmd.WriteToFile(kubeconfig, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
