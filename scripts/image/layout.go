package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// kubeProxy is the path at which the manifests of kubeadm and kops expect kube-proxy;
// those of EKS search it in PATH. With this second name `kubectl set image` is the whole
// migration.
const kubeProxy = "usr/local/bin/kube-proxy"

// writeLayout writes the image for all platforms as one OCI layout.
func (r request) writeLayout(f flavour, binaries []binary) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range binaries {
		img, err := r.image(f, b)
		if err != nil {
			return fmt.Errorf("image for %s: %w", b.arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{
			Platform: &v1.Platform{OS: "linux", Architecture: b.arch}}})
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	path, err := layout.Write(filepath.Join(r.out, f.dir), empty.Index)
	if err != nil {
		return fmt.Errorf("write the layout: %w", err)
	}
	// Tools take the tag of an image in a layout from this annotation.
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version + f.suffix}))
}

// image returns an image of the program and the files of the flavour: no shell, no user
// database.
func (r request) image(f flavour, b binary) (v1.Image, error) {
	files, err := rootFS(b.data, r.created)
	if err != nil {
		return nil, err
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if with, has := f.with[b.arch]; has {
		if img, err = r.layer(img, with.files, "Debian's iptables and nftables, with the libraries that they need"); err != nil {
			return nil, err
		}
	}
	if img, err = r.layer(img, files, "the binary, and kube-proxy as its second name"); err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", b.arch, v1.Time{Time: r.created}
	config.Config = v1.Config{Entrypoint: []string{"/fairlead"}, Env: []string{"PATH=" + f.path}, WorkingDir: "/", Labels: r.labels()}
	return mutate.ConfigFile(img, config)
}

// layer puts files on top of an image.
func (r request) layer(img v1.Image, files []byte, what string) (v1.Image, error) {
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	return mutate.Append(img, mutate.Addendum{Layer: l, History: v1.History{Created: v1.Time{Time: r.created}, CreatedBy: "make image", Comment: what}})
}

func (r request) labels() map[string]string {
	l := map[string]string{
		"org.opencontainers.image.title":       "fairlead",
		"org.opencontainers.image.description": "A Kubernetes Service proxy: a drop-in for kube-proxy",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/fairlead/fairlead",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.created":     r.created.Format(time.RFC3339),
	}
	if r.revision != "" {
		l["org.opencontainers.image.revision"] = r.revision
	}
	return l
}

// rootFS returns the image's file system as a tar file.
func rootFS(program []byte, date time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	files := []tar.Header{
		{Name: "fairlead", Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))},
		{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/local/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/local/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: kubeProxy, Typeflag: tar.TypeSymlink, Linkname: "/fairlead", Mode: 0o777},
	}
	for _, h := range files {
		h.ModTime, h.Format = date, tar.FormatPAX
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := w.Write(program); err != nil {
				return nil, err
			}
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
