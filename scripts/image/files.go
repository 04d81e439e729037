package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// tarFolder writes the files of a folder, in the order of their names, as one archive
// that `ctr images import` and `skopeo copy oci-archive:` read.
func tarFolder(archive, dir string, date time.Time) error {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return addFile(w, path, tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, ModTime: date, Format: tar.FormatPAX})
	})
	if err == nil {
		err = w.Close()
	}
	if closed := out.Close(); err == nil {
		err = closed
	}
	return err
}

func addFile(w *tar.Writer, path string, h tar.Header) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h.Size = info.Size()
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// writeChecksums writes SHA256SUMS over the files of dir, in the form of sha256sum. The
// checksum of its archive covers the layout, as do the digests inside.
func writeChecksums(dir string) error {
	files, err := os.ReadDir(dir) // in the order of names
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, f := range files {
		if f.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(data), f.Name())
	}
	return os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums.String()), 0o644)
}
