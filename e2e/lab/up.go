package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

// noInstall is the value of --install and --install-webhook that installs nothing.
const noInstall = "none"

const maxNodes = 20

func newUp() *cobra.Command {
	var dir string
	options := cluster.Options{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start the cluster, and leave it running",
		Long: `Start the cluster, and leave it running in the background until "lab down".

When the command returns, all nodes, cluster DNS, Vicinity and its admission webhook are ready. All logs are in the folder
logs below --dir. After a failure only the logs remain.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options, err := completeOptions(options, dir)
			if err != nil {
				return err
			}
			return up(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), options)
		},
	}
	addDir(cmd, &dir)
	flags := cmd.Flags()
	flags.IntVar(&options.Nodes, "nodes", 3, "number of nodes, in zones a, b and c round-robin, two per rack")
	flags.StringVar(&options.Manifests, "install", "manifests",
		"the `FOLDER` or release file to install the proxy from, or none to install nothing of Vicinity")
	flags.StringToStringVar(&options.Settings, "settings", nil,
		"`SETTINGS` to add to the installed VicinityProxyConfiguration, such as secureMetricsBindAddress=0.0.0.0:10449")
	flags.StringVar(&options.Proxy, "proxy-binary", "bin/proxy", "the proxy's executable `FILE` for the image, as built by make build")
	flags.StringVar(&options.WebhookManifests, "install-webhook", "manifests/webhook",
		"the `FOLDER` or release file to install the admission webhook from, or none")
	flags.StringSliceVar(&options.WebhookComponents, "webhook-components", nil,
		"`FOLDERS` of components to install the webhook with, such as manifests/webhook/components/demand")
	flags.StringVar(&options.Webhook, "webhook-binary", "bin/webhook", "the webhook's executable `FILE` for the image")
	flags.StringSliceVar(&options.Archives, "images", nil,
		"image archive `FILES` (docker save) to load on all nodes, which cannot pull images")
	flags.BoolVar(&options.KubeProxy, "kube-proxy", false,
		"also run kube-proxy on every node, as kubeadm does, in nftables mode (needs the program nft)")
	flags.BoolVar(&options.NodeDNS, "node-dns", false,
		"also run a DNS cache like NodeLocal DNSCache on every node, which queries the node's proxy first")
	flags.BoolVar(&options.Localhost, "localhost", false,
		"also serve TCP node ports on loopback (feature gate KubeProxyNFTablesLocalhostNodePorts)")
	return cmd
}

// completeOptions makes paths absolute, and returns an error for invalid options before anything is started.
func completeOptions(options cluster.Options, dir string) (cluster.Options, error) {
	if os.Geteuid() != 0 {
		return options, errors.New("the lab creates namespaces and needs root: run it with sudo")
	}
	if options.Nodes < 1 || options.Nodes > maxNodes {
		return options, fmt.Errorf("--nodes %d: want 1 to %d", options.Nodes, maxNodes)
	}
	folder, err := absolute(dir)
	if err != nil {
		return options, err
	}
	options.Folder = cluster.Folder(folder)
	for i, archive := range options.Archives {
		if options.Archives[i], err = existingPath("--images", archive); err != nil {
			return options, err
		}
	}
	if options.Manifests == noInstall {
		options.WebhookManifests = noInstall
	}
	options.Manifests, options.Proxy, err = resolveComponent("--install", options.Manifests, "--proxy-binary", options.Proxy)
	if err != nil {
		return options, err
	}
	for i, component := range options.WebhookComponents {
		if options.WebhookComponents[i], err = existingPath("--webhook-components", component); err != nil {
			return options, err
		}
	}
	options.WebhookManifests, options.Webhook, err = resolveComponent("--install-webhook", options.WebhookManifests, "--webhook-binary",
		options.Webhook)
	return options, err
}

// resolveComponent makes the paths of a component of Vicinity absolute. If the component is not to be installed, the manifests are
// empty, and the image is still built if the program exists.
func resolveComponent(installFlag, manifests, programFlag, program string) (folder, file string, err error) {
	if manifests != noInstall {
		if folder, err = existingPath(installFlag, manifests); err != nil {
			return "", "", err
		}
	}
	file, err = existingPath(programFlag, program)
	if err != nil && folder != "" {
		return "", "", fmt.Errorf("%w: run `make build` first", err)
	}
	return folder, file, nil
}

// absolute makes a path absolute, and resolves its symbolic links if it exists.
func absolute(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", path, err)
	}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved, nil
	}
	return path, nil
}

func existingPath(flag, path string) (string, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: there is no %s", flag, path)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	return absolute(path)
}

func up(ctx context.Context, stdout, stderr io.Writer, options cluster.Options) error {
	start := time.Now()
	if err := checkNoLab(options.Folder); err != nil {
		return err
	}
	if err := cleanUp(options.Folder); err != nil { // leftovers of a killed lab
		return err
	}
	if err := launch(ctx, stderr, options); err != nil {
		return errors.Join(err, cleanUpFailedStart(ctx, options.Folder))
	}
	fmt.Fprintf(stdout, "The cluster is up after %s.\n\n  export KUBECONFIG=%s\n\n",
		time.Since(start).Round(time.Second/10), options.Folder.Kubeconfig())
	return nil
}

// checkNoLab returns an error if a lab runs in the folder.
func checkNoLab(folder cluster.Folder) error {
	keeper, err := keeperOf(folder)
	if err != nil {
		return err
	}
	if keeper != 0 {
		return fmt.Errorf("%w in %s (process %d): stop it with `lab down`, or choose another --dir", errAlreadyRunning, folder, keeper)
	}
	return nil
}

func launch(ctx context.Context, stderr io.Writer, options cluster.Options) error {
	if _, err := binaries.Build(ctx, stderr, binaries.All...); err != nil {
		return err
	}
	if err := buildOwnPrograms(ctx, options.Folder); err != nil {
		return err
	}
	return startKeeper(ctx, stderr, options)
}

// cleanUpFailedStart removes what a lab that failed to start left behind. It keeps the logs, unless the user interrupted the
// start. It removes nothing if another lab has started in the folder by then.
func cleanUpFailedStart(ctx context.Context, folder cluster.Folder) error {
	if err := checkNoLab(folder); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return down(folder)
	}
	if err := cleanUp(folder, folder.Logs()); err != nil {
		return err
	}
	return fmt.Errorf("the logs are in %s", folder.Logs())
}
