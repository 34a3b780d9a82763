package main

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// makeImages writes an archive of each program's image for each node platform.
func (r release) makeImages(programs []program) error {
	recipes := map[string]func(name, program string) image.Image{proxy: image.Proxy, webhook: image.Webhook}
	for _, p := range programs {
		if p.platform.os != "linux" {
			continue
		}
		img := recipes[p.name](r.imageName(p.name), p.path)
		img.Architecture = p.platform.architecture
		img.Created = r.created
		img.Labels = map[string]string{
			"org.opencontainers.image.title":    "vicinity-" + p.name,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source":   source,
			"org.opencontainers.image.licenses": license,
		}
		file := fmt.Sprintf("vicinity-%s-%s-image-%s.tar", p.name, r.version, p.platform.architecture)
		r.step("building image %s for %s", img.Name, p.platform)
		if err := image.WriteArchive(r.path(file), img); err != nil {
			return err
		}
	}
	return nil
}

const (
	source  = "https://github.com/vicinity-proxy/vicinity"
	license = "Apache-2.0"
)

// imageName returns the name of a program's image in the registry.
func (r release) imageName(program string) string {
	return fmt.Sprintf("%s/vicinity-%s:%s", r.registry, program, r.version)
}
