// A call under way: its plan, its job, and the memory that the job points to.
#pragma once

#include <initializer_list>
#include <vector>

#include "calls.hpp"
#include "job.hpp"

namespace halfstep {

class Call {
 public:
    // Operands in the order that the kernel expects; the first `outputs` of them are written.
    Call(std::initializer_list<const View*> operands, const Shape& scale, int outputs);
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Checks the parameters and points the job to them. Where codes are given (operand 1) rather
    // than computed, the bounds say nothing of them, so their dtype decides on float64.
    void set_qparams(const QParams& qparams, bool codes_given);

    bool is_empty() const { return plan_.count == 0; }
    const Plan& plan() const { return plan_; }
    Job& job() { return job_; }

    // How many accumulators a reduction needs in each thread.
    std::int64_t accumulators() const;

 private:
    void write_table();

    Plan plan_;
    Job job_;
    std::vector<float> narrow_zero_;
    std::vector<float> scale_table_;
    std::vector<Cell> zero_table_;
};

}  // namespace halfstep
