# modules.sh, for scripts inside a test kernel to source. It loads the modules beforehand and all at once: one by one, as rules need them, they
# take the first agents more than a minute.
load_modules() { # PATTERN...
	local names=() pattern name
	for pattern; do
		for name in $(find "/run/m/lib/modules/$(uname -r)/kernel/net/" -name "$pattern.ko*"); do
			name=${name##*/}
			names+=("${name%%.ko*}")
		done
	done
	/run/modprobe -a "${names[@]}" || echo "not all modules were loaded"
}
