package cluster

import (
	"context"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// importImages builds the images and returns the root folder of a containerd that has them. There is no registry, and
// kubelet backs off after it failed to pull an image. So a node must have all images before kubelet starts.
func (c *Cluster) importImages(ctx context.Context) (root string, err error) {
	file := filepath.Join(c.config.Folder.Run(), "images.tar")
	images, err := c.images()
	if err != nil {
		return "", err
	}
	if err := image.Write(file, images...); err != nil {
		return "", err
	}
	store := image.Store{
		Programs: c.config.Programs,
		Netns:    c.host,
		Dir:      filepath.Join(c.config.Folder.Run(), "images"),
		Logs:     c.config.Folder.Logs(),
	}
	if root, err = store.Import(ctx, append([]string{file}, c.config.Archives...)...); err != nil {
		return "", err
	}
	c.config.Step("the images are ready")
	return root, nil
}

func (c *Cluster) images() ([]image.Image, error) {
	images := []image.Image{
		{Name: pauseImage, Program: filepath.Join(c.config.Folder.OwnPrograms(), "pause"), User: "65535:65535"},
		{Name: corednsImage, Program: c.config.Programs.Path(binaries.CoreDNS, "coredns"), User: "65532:65532"},
		{Name: probeImage, Program: filepath.Join(c.config.Folder.OwnPrograms(), "probe")},
	}
	if c.config.NodeDNS {
		images = append(images, image.Image{Name: nodeDNSImage, Program: c.config.Programs.Path(binaries.NodeDNS, "nodedns")})
	}
	if c.config.Proxy != "" {
		images = append(images, image.Proxy(proxyName+":"+imageTag, c.config.Proxy))
	}
	if c.config.Webhook != "" {
		images = append(images, image.Webhook(webhookName+":"+imageTag, c.config.Webhook))
	}
	if c.config.KubeProxy {
		kubeProxy, err := c.imageOfKubeProxy()
		if err != nil {
			return nil, err
		}
		images = append(images, kubeProxy)
	}
	return images, nil
}
