package main

import (
	"fmt"

	"github.com/vicinity-proxy/vicinity/e2e/lab/image"
)

// makeImages writes an archive of each program's image for each node platform.
func (r release) makeImages(programs []program) error {
	recipes := map[string]func(name, program string) image.Image{proxy: image.Proxy, webhook: image.Webhook}
	for _, built := range programs {
		if built.platform.os != "linux" {
			continue
		}
		made := recipes[built.name](r.imageName(built.name), built.built)
		made.Architecture = built.platform.architecture
		made.Created = r.created
		made.Labels = map[string]string{
			"org.opencontainers.image.title":    "vicinity-" + built.name,
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.source":   source,
			"org.opencontainers.image.licenses": license,
		}
		file := fmt.Sprintf("vicinity-%s-%s-image-%s.tar", built.name, r.version, built.platform.architecture)
		r.step("building image %s for %s", made.Name, built.platform)
		if err := image.WriteArchive(r.path(file), made); err != nil {
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
