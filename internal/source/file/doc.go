// Package file is the source that reads a folder of ordinary Kubernetes manifests
// and watches it: --manifests DIR.
//
// It owns the last known state of the folder: for every file the objects of its
// last valid content, for every object what was delivered. app starts Run in a
// goroutine of its own, and all state belongs to that goroutine. Events leave
// through the sink. If a file cannot be parsed, the source reports the line, and
// the last valid content stays in use. The same applies while a file seems to be
// only half written (hold.go). The other files of the folder are not affected.
//
// The path of a change: inotify.go and watch.go receive the notification, folder.go
// reads the files, split.go and decode.go convert text to objects, merge.go
// computes the difference from the delivered state, complete.go decides whether the
// state is complete.
package file
