// Package file is the source that reads a folder of ordinary Kubernetes
// manifests and watches it: --manifests DIR.
//
// It owns what the folder said last: for every file the objects of its last good
// content, for every object what was delivered. app starts Run in a goroutine of
// its own, and all state belongs to that goroutine; events leave through the
// sink. A file that does not parse is reported with its line and its last good
// content stays; so it does while a file looks half written (hold.go). The rest of
// the folder goes on.
//
// The way of a change: inotify.go and watch.go hear of it, folder.go reads the
// files, split.go and decode.go turn text into objects, merge.go tells what is
// different from what was delivered, complete.go whether that is all.
package file
