// Package fastpath finds out with packets whether the kernel's fast path carries
// connections whose addresses are translated. It makes three network namespaces of its
// own, a client, a node and a server, without a way outside, and leaves nothing. app
// calls it at the start, on kernels that are known or suspected to fail, or on every kernel
// with --offload-self-test=always.
package fastpath
