#include "run.h"

int main(int argc, char** argv) {
  return trash_panda::cli::run(argc, argv);
}
